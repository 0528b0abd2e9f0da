#!/bin/sh
if [ -e done ]; then one=1; else one=0; fi
echo "{\"correct\": $one, \"fast\": 0.5}" >/logs/verifier/reward.json
