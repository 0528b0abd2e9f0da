#!/bin/sh
cp /tmp/ready out.txt
