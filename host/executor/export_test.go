package executor

// CommandImage returns the image of the kernel that posts commands.
func CommandImage() []byte { return commandImage }
