#!/bin/sh
echo excellent >/logs/verifier/reward.txt
