#!/bin/bash
exec python3 "$TEST_DIR/outputs.py"
