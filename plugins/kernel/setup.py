"""Builds the kernel, if there is a C compiler."""

from setuptools import Extension, setup

# Without a compiler the service encodes with onnxruntime. Sums keep their order without contraction of a·b + c.
# Integers wrap, because weights that are not numbers give sums beyond 32 bits.
KERNEL = Extension(
    "taugate_kernel.kernel",
    [f"src/taugate_kernel/{name}.c" for name in ("kernel", "encode", "avx2", "int8", "bfloat16", "float32")],
    depends=[f"src/taugate_kernel/{name}.h" for name in ("kernel", "lanes", "encode")],
    extra_compile_args=["-O3", "-fvisibility=hidden", "-ffp-contract=off", "-fwrapv", "-fno-math-errno", "-Wno-psabi"],
    py_limited_api=True,
    optional=True,
)


if __name__ == "__main__":
    setup(ext_modules=[KERNEL])
