from pathlib import Path

good = Path("/app/done").exists()
print("==== short test summary info ====")
print(("PASSED" if good else "FAILED") + " test_outputs.py::test_done")
