# Removes from an environment what the service never reads: tests, static libraries, headers, sources, type stubs, numpy's tools
# for building, ONNX Runtime's for changing models and its library for C (Python's has the same code), and descriptions of the
# services of AWS that reach no bucket.
# Usage: sh strip.sh ENVIRONMENT
set -eu
cd "$1"/lib/python3*/site-packages
find numpy -type d -name tests -prune -exec rm -r {} +
find . -type f \( -name '*.a' -o -name '*.h' -o -name '*.pyi' -o -name '*.c' -o -name '*.pyx' -o -name '*.pxd' \) -delete
rm -rf numpy/distutils numpy/f2py onnxruntime/transformers onnxruntime/quantization onnxruntime/tools onnxruntime/datasets onnxruntime/capi/libonnxruntime.so.*
if [ -d botocore/data ]; then
  find botocore/data -mindepth 1 -maxdepth 1 -type d ! -name s3 ! -name sts ! -name 'sso*' ! -name signin -exec rm -r {} +
fi
