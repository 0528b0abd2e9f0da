#!/bin/sh
echo "$GREETING $WHOM" >said
