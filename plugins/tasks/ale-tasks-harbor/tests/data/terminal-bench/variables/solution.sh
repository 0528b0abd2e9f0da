#!/bin/bash
echo "$GREETING in $TEST_DIR" >said
