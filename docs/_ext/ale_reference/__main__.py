"""Write the generated parts of the documentation: ``nox -s reference``.

With ``--check``, only name the files that differ, and end with 1 if there are any.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

# Found by the line above.
from ale_reference import DOCS, stale

if __name__ == "__main__":
    check = sys.argv[1:] == ["--check"]
    found = stale()
    if not check:
        for path, text in found.items():
            path.write_text(text)
    print("".join(f"{path.relative_to(DOCS.parent)}\n" for path in found), end="")
    sys.exit(1 if check and found else 0)
