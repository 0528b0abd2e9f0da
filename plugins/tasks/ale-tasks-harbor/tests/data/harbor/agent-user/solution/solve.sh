#!/bin/sh
if grep -qx "$(id -un)" /solution/word; then id -un >out.txt; fi
