#!/bin/bash
touch one two
