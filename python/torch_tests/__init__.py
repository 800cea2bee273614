"""Tests of shunt.torch with real torch: every rank is a process, gloo (or nccl) is the truth. See README.md."""
