package proc

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/octopay/octopay/internal/eventually"
	"go.uber.org/goleak"
)

// TestMain makes this program also one that starts a child and waits to be killed.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "parent" {
		cmd := exec.Command("sleep", "120") // longer than anybody waits here
		if _, err := Start(cmd); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(cmd.Process.Pid)
		_, _ = os.Stdin.Read(make([]byte, 1))
		return
	}
	goleak.VerifyTestMain(m)
}

// there reports whether a process is, and is no corpse.
func there(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestAChildDiesWithItsParent(t *testing.T) {
	parent := exec.Command(os.Args[0], "parent")
	parent.Stderr = os.Stderr
	if _, err := parent.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("no child: %v, %v", err, parent.Wait())
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || !there(pid) {
		t.Fatalf("child %q: %v", line, err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	eventually.True(t, "the child ends after who started it", func() bool { return !there(pid) })
}

func TestAChildSaysHowItEnded(t *testing.T) {
	c, err := Start(exec.Command("false"))
	if err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	if exit := (*exec.ExitError)(nil); !errors.As(c.Err(), &exit) || exit.ExitCode() != 1 {
		t.Errorf("%v", c.Err())
	}
	if _, err := Start(exec.Command("/nothing/there")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
