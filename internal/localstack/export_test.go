package localstack

// Running says whether process pid is there.
func Running(pid int) bool { return identity(pid) != "" }
