//go:build !portable

package main

import "github.com/shunt-ccl/shunt/cuda/gonvml"

var openManagement = gonvml.Open
