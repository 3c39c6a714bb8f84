#!/bin/bash
# As tests/ptxas.sh, for the other architectures that are built.
ARCHS="sm_80 sm_100"
. "$TOP/tests/ptxas.sh"
