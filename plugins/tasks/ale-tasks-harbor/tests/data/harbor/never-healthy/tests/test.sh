#!/bin/sh
if cmp -s /tmp/ready out.txt; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
