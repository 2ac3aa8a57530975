from benchmarks.reliability.conformance import cases

SAID = """\
✅ Fragmented method: Server waited successfully
❌ Valid GET request: Response Status Code 404, Expected ranges: [[200,299]]
✅ Missing Host header: Response Status Code 404, Expected ranges: [[400,499]]
✅ Multiple Host headers: Response Status Code 400, Expected ranges: [[400,499]]
❌ Chunked Transfer-Encoding: Read operation timed out
"""


def test_404_is_how_a_request_is_accepted() -> None:
    assert cases(SAID) == {
        "Fragmented method": ("server waited successfully", True),
        "Valid GET request": ("404", True),
        "Missing Host header": ("404", False),
        "Multiple Host headers": ("400", True),
        "Chunked Transfer-Encoding": ("read operation timed out", False),
    }
