#!/bin/bash
echo "== short test summary info =="
serves() { (echo >/dev/tcp/127.0.0.1/8765) 2>/dev/null; }
if [ "$ANSWER" = right ] && [ "$PWD" = /tmp ] && serves; then
  echo "PASSED tests/test_outputs.py::test_shell"
else
  echo "FAILED tests/test_outputs.py::test_shell - $ANSWER $PWD"
fi
