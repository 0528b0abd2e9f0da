#!/bin/bash
echo Collected nothing.
