"""Text above the pages of a PDF: filled fields, notes and comments, and XFA forms."""

import ctypes
import logging
from collections.abc import Callable, Iterator
from typing import Any

import lxml.etree
import pypdfium2
import pypdfium2.raw as pdfium

# pypdfium2 warns of every XFA form, but their words are read here.
logging.getLogger("pypdfium2").setLevel(logging.ERROR)

_FILLED = {pdfium.FPDF_FORMFIELD_TEXTFIELD, pdfium.FPDF_FORMFIELD_COMBOBOX, pdfium.FPDF_FORMFIELD_LISTBOX}
_CHECKED = {pdfium.FPDF_FORMFIELD_CHECKBOX, pdfium.FPDF_FORMFIELD_RADIOBUTTON}
# Annotations whose words are hidden, or shown elsewhere.
_WITHOUT_WORDS = {pdfium.FPDF_ANNOT_LINK, pdfium.FPDF_ANNOT_POPUP, pdfium.FPDF_ANNOT_WIDGET}
_XFA_TEXTS = ("template", "datasets")


def annotation_lines(pdf: pypdfium2.PdfDocument, page: pypdfium2.PdfPage) -> Iterator[str]:
    """Yield a line for each filled field of a page, with its label, and for each note or comment.

    Boxes that are not checked and hidden fields are left out. The forms of `pdf` have to be initialized.
    """
    for number in range(pdfium.FPDFPage_GetAnnotCount(page)):
        annotation = pdfium.FPDFPage_GetAnnot(page, number)
        if not annotation:
            continue
        try:
            yield from filter(None, [_annotation_line(pdf, annotation)])
        finally:
            pdfium.FPDFPage_CloseAnnot(annotation)


def _annotation_line(pdf: pypdfium2.PdfDocument, annotation: Any) -> str:  # noqa: ANN401 (a pointer of pdfium)
    kind = pdfium.FPDFAnnot_GetSubtype(annotation)
    if pdfium.FPDFAnnot_GetFlags(annotation) & pdfium.FPDF_ANNOT_FLAG_HIDDEN:
        return ""
    if kind == pdfium.FPDF_ANNOT_WIDGET and pdf.formenv:
        return _field_line(pdf.formenv, annotation)
    if kind in _WITHOUT_WORDS:
        return ""
    return _string(lambda buffer, size: pdfium.FPDFAnnot_GetStringValue(annotation, b"Contents", buffer, size)).strip()


def _field_line(form: pypdfium2.PdfFormEnv, annotation: Any) -> str:  # noqa: ANN401 (a pointer of pdfium)
    kind = pdfium.FPDFAnnot_GetFormFieldType(form, annotation)
    if kind in _CHECKED and pdfium.FPDFAnnot_IsChecked(form, annotation):
        value = _string(lambda buffer, size: pdfium.FPDFAnnot_GetFormFieldExportValue(form, annotation, buffer, size))
    elif kind in _FILLED:
        value = _string(lambda buffer, size: pdfium.FPDFAnnot_GetFormFieldValue(form, annotation, buffer, size)).strip()
    else:
        value = ""
    if not value:
        return ""
    label = _string(lambda buffer, size: pdfium.FPDFAnnot_GetFormFieldAlternateName(form, annotation, buffer, size))
    if not label.strip():
        name = _string(lambda buffer, size: pdfium.FPDFAnnot_GetFormFieldName(form, annotation, buffer, size))
        label = name.rpartition(".")[2].partition("[")[0]
    return f"{' '.join(label.split())}: {value}".replace("\r\n", "\n").replace("\r", "\n")


def _string(read: Callable[[Any, int], int]) -> str:
    """Return a string of pdfium.

    Args:
        read: Fills a buffer, and returns the number of bytes needed.
    """
    size = read(None, 0)
    if size <= 2:  # the two bytes at the end
        return ""
    buffer = ctypes.create_string_buffer(size)
    read(ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ushort)), size)
    return buffer.raw[: size - 2].decode("utf-16-le", "replace").replace("\x00", "")


def xfa_lines(pdf: pypdfium2.PdfDocument) -> list[str]:
    """Return the captions and values of an XFA form, as the page itself may only ask for another reader."""
    lines: list[str] = []
    for number in range(pdfium.FPDF_GetXFAPacketCount(pdf)):
        if _packet_name(pdf, number) in _XFA_TEXTS:
            root = lxml.etree.fromstring(
                _packet(pdf, number), lxml.etree.XMLParser(recover=True, resolve_entities=False, no_network=True)
            )
            lines += (
                [] if root is None else [text for content in root.itertext() if (text := " ".join(content.split()))]
            )
    return lines


def _packet_name(pdf: pypdfium2.PdfDocument, number: int) -> str:
    buffer = ctypes.create_string_buffer(max(pdfium.FPDF_GetXFAPacketName(pdf, number, None, 0), 1))
    pdfium.FPDF_GetXFAPacketName(pdf, number, buffer, len(buffer))
    return buffer.value.decode("utf-8", "replace")


def _packet(pdf: pypdfium2.PdfDocument, number: int) -> bytes:
    size = ctypes.c_ulong()
    pdfium.FPDF_GetXFAPacketContent(pdf, number, None, 0, size)
    buffer = ctypes.create_string_buffer(max(size.value, 1))
    pdfium.FPDF_GetXFAPacketContent(pdf, number, buffer, size.value, size)
    return buffer.raw[: size.value]
