#!/bin/sh
echo kept >out.txt; mkdir folder; echo deep >folder/file; echo log >/logs/artifacts/log
