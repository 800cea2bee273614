// Package test proves the NCCL-compatible library: that it exports what NCCL exports, that what Shunt does not do
// reaches the real library with equal arguments, and that programs written for NCCL run over Shunt. The programs are in
// programs/ and run on host memory (SHUNT_NCCL_MEMORY=host). A library that only writes down how it is called stands
// for the real one.
package test
