#!/bin/sh
echo kept >out.txt; mkdir folder; echo deep >folder/file; echo x >folder/x.tmp; echo log >/logs/artifacts/log
