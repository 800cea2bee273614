package plugin

// KernelArg is an argument of a kernel under construction.
type KernelArg struct {
	ref   RefID
	value Reg
	bytes uint16
	isRef bool
}

// Address returns the address of a place in memory as an argument, 8 bytes.
func Address(ref RefID) KernelArg { return KernelArg{ref: ref, bytes: 8, isRef: true} }

// Value returns a register's value as an argument of 1, 2, 4 or 8 bytes.
func Value(r Reg, bytes int) KernelArg { return KernelArg{value: r, bytes: uint16(bytes)} }

// Abort returns the communicator's watch page, for Address alone. It begins with a
// 32-bit word that kernels poll, not zero once the communicator is aborted; see
// WatchAbort for the rest.
func (b *Builder) Abort() RefID {
	return b.ref(Ref{Space: SpaceAbort, Offset: uint16(b.Const(0)), Scale: None})
}

// Launch runs a kernel of one of the endpoint's images with a one-dimensional
// grid. Its arguments are laid out in the order given, each aligned to its size.
func (b *Builder) Launch(image, name string, grid, block Reg, args ...KernelArg) {
	b.LaunchGrid(image, name, [2]Reg{grid, b.Const(1)}, block, args...)
}

// LaunchGrid is like Launch, with a grid of two dimensions.
func (b *Builder) LaunchGrid(image, name string, grid [2]Reg, block Reg, args ...KernelArg) {
	first := len(b.plan.Args)
	for _, a := range args {
		arg := Arg{Ref: None, Value: uint16(a.value), Bytes: a.bytes}
		if a.isRef {
			arg = Arg{Ref: uint16(a.ref), Value: None, Bytes: a.bytes}
		}
		b.plan.Args = append(b.plan.Args, arg)
	}
	one := uint16(b.Const(1))
	b.plan.Kernels = append(b.plan.Kernels, Kernel{
		Image: image, Name: name, Grid: [3]uint16{uint16(grid[0]), uint16(grid[1]), one},
		Block:  [3]uint16{uint16(block), one, one},
		Shared: None, FirstArg: uint16(first), CountArgs: uint16(len(args)),
	})
	b.step(Step{Kind: StepLaunch, A: uint16(len(b.plan.Kernels) - 1)})
}

// LaunchDependent is like Launch, of a kernel that waits for what is before it in the
// stream itself, before it touches memory: it may be scheduled earlier.
func (b *Builder) LaunchDependent(image, name string, grid, block Reg, args ...KernelArg) {
	b.Launch(image, name, grid, block, args...)
	b.plan.Steps[len(b.plan.Steps)-1].B = LaunchDependent
}
