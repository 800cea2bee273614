package process

import (
	"context"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/shunt-ccl/shunt/plugin"
)

// watch waits for the end of the process and says how it ended.
func (c *Client) watch() {
	defer c.goroutines.Done()
	<-c.runner.child.exited
	c.runner.readers.Wait() // the tail of stderr is complete
	c.finish(plugin.Errorf(plugin.PluginDied, "%s %s%s", c, c.runner.child.status, c.quoteStderr()))
}

// receiveDescriptors collects the descriptors that the plugin passes.
func (c *Client) receiveDescriptors() {
	defer c.goroutines.Done()
	if err := c.arrivals.serve(); err != nil {
		c.condemn(plugin.Errorf(plugin.PluginDied, "%s was killed: %w%s", c, err, c.quoteStderr()))
	}
}

// ping asks for a sign of life, and declares dead what gives none in the time
// that its state allows; see Config.
func (c *Client) ping() {
	defer c.goroutines.Done()
	health := grpc_health_v1.NewHealthClient(c.conn)
	ticker := time.NewTicker(c.config.PingInterval)
	defer ticker.Stop()
	for {
		select {
		case <-c.done:
			return
		case <-ticker.C:
		}
		if !c.alive(health) {
			return
		}
	}
}

// mostPingTimeouts is the number of PingTimeouts that a plugin gets for a sign of life while it does not look stuck.
const mostPingTimeouts = 10

func (c *Client) alive(health grpc_health_v1.HealthClient) bool {
	begin := time.Now()
	ctx, cancel := context.WithCancel(c.life)
	defer cancel()
	replied := make(chan error, 1)
	go func() {
		var header, trailer metadata.MD // what comes from the plugin has one of them at least
		_, err := health.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: goplugin.GRPCServiceName},
			grpc.Header(&header), grpc.Trailer(&trailer))
		if header.Len()+trailer.Len() > 0 {
			err = nil
		}
		replied <- err
	}()
	last, pause := begin, c.config.PingTimeout // the latest look, and the time until the next one
	look := time.NewTimer(pause)
	defer look.Stop()
	wedged := suspicion{timeout: c.config.PingTimeout, before: c.runner.child.cpu()}
	state := ""
	var mirror *echo // made when it is needed
	for {
		var err error
		select {
		case err = <-replied:
			if isReply(err) {
				return true
			}
			if c.life.Err() != nil {
				return false
			}
			if status.Code(err) == codes.Unavailable {
				// The connection is lost: either the process is ending, which
				// watch is about to say, or it has closed its socket.
				select {
				case <-c.done:
					return false
				case <-look.C:
				}
			}
		case <-look.C:
			if mirror == nil {
				mirror = newEcho()
				defer mirror.close()
			}
			prompt, now := mirror.prompt(), time.Now()
			if !wedged.late(now.Sub(last), pause) {
				state = wedged.look(c.runner.child, wedged.ran, prompt)
			}
			if state == "" && wedged.ran < mostPingTimeouts*c.config.PingTimeout {
				last, pause = now, c.config.PingTimeout/looksInTimeout
				look.Reset(pause)
				continue
			}
		}
		if state == "" {
			state = "runs but is wedged"
		}
		c.condemn(plugin.Errorf(plugin.PluginDied, "%s does not respond: no sign of life for %v, the process %s; it was killed%s",
			c, time.Since(begin).Round(time.Millisecond), state, c.quoteStderr()))
		return false
	}
}

// process is a process as suspicion sees it.
type process interface {
	stopped() bool
	asleep() bool
	cpu() time.Duration
}

// suspicion distinguishes a plugin that will not reply from one that the machine has not
// let reply yet. A living plugin that was asked has a thread that runs, is ready to run,
// or waits for the disk, until it has replied.
type suspicion struct {
	timeout time.Duration // of a process that is stopped; three times that of one that is wedged
	before  time.Duration // processor time of the process when it was asked
	asleep  int           // looks that found no thread awake, since this process was late itself
	ran     time.Duration // since the process was asked, without the time in which this process was late
}

// late counts the time since the latest look, which was to be a pause, and reports whether this process comes late: a
// job that is stopped stops as a whole, and nothing of it can tell what has become of the rest in the moment in which
// it goes on.
func (s *suspicion) late(since, pause time.Duration) bool {
	s.ran += min(since, pause)
	return since > pause+s.timeout/looksInTimeout
}

// Looks follow one another faster than a stopped process is given up, because a thread
// that has nothing to do with the reply may be awake at any of them.
const (
	looksInTimeout = 4
	asleepLooks    = 3
)

// look returns what is wrong with the process, which was asked that long ago; "" while it
// may still reply. If this process is not prompt itself, a plugin without an awake thread
// may have replied already.
func (s *suspicion) look(p process, since time.Duration, prompt bool) string {
	if p.stopped() {
		return "is stopped"
	}
	switch {
	case !prompt:
		s.asleep = 0
	case p.asleep():
		s.asleep++
	}
	limit := 3 * s.timeout
	switch {
	case since < limit:
	case s.asleep >= asleepLooks:
		return "sleeps and does not wake up"
	case p.cpu()-s.before >= limit:
		return "spins without end"
	}
	return ""
}

// stuck kills a plugin that has not replied to a call, and returns why. It may reply to
// pings all the same, while one of its threads waits forever.
func (c *Client) stuck(what string, since time.Duration) error {
	err := plugin.Errorf(plugin.PluginDied, "%s did not respond to %s within %s and was killed%s", c, what, seconds(since),
		c.quoteStderr())
	c.condemn(err)
	if first := c.Err(); first != nil {
		return first
	}
	return err
}

// condemn declares the plugin dead and kills it. One that was asked to end may
// take its connections down before it does; Close sees to its end.
func (c *Client) condemn(err error) {
	c.finish(err)
	c.mu.Lock()
	closing := c.closing
	c.mu.Unlock()
	if !closing {
		c.runner.child.kill()
	}
}

// finish ends the client's life, once: calls in flight fail, Done is closed,
// OnExit called unless the end was asked for.
func (c *Client) finish(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	asked := c.closing
	if asked {
		err = c.closed()
	}
	c.err = err
	c.mu.Unlock()
	c.endLife()
	close(c.done)
	if asked {
		return
	}
	c.config.Logger.Error("transport plugin died", "error", err)
	if c.config.OnExit != nil {
		go c.config.OnExit(err)
	}
}

// Close asks the plugin to shut down, kills it if it has not ended within the time that its state allows (see
// Config.KillTimeout), and releases everything. Its error says that the plugin had to be killed, or did not end with
// status 0; a plugin that was dead before is no error. Calling it again returns the same.
func (c *Client) Close() error {
	c.teardown.Do(func() {
		c.mu.Lock()
		c.closing = true
		dead := c.err != nil
		c.mu.Unlock()
		c.teardownErr = c.end(dead)
	})
	return c.teardownErr
}

// mostKillTimeouts is the number of KillTimeouts that a plugin gets while it does not look stuck.
const mostKillTimeouts = 10

// awaitEnd waits for the end of a plugin that was asked for it. It returns "" when it has ended, or what is wrong with
// it after that time.
func (c *Client) awaitEnd() (state string, since time.Duration) {
	child, timeout := c.runner.child, c.config.KillTimeout
	begin := time.Now()
	wedged := suspicion{timeout: timeout, before: child.cpu()}
	if waitFor(child.exited, timeout) {
		return "", 0
	}
	mirror := newEcho()
	defer mirror.close()
	for {
		since = time.Since(begin)
		state = wedged.look(child, since, mirror.prompt())
		if state == "" && since >= mostKillTimeouts*timeout {
			state = "still runs"
		}
		if state != "" || waitFor(child.exited, timeout/looksInTimeout) {
			return state, since
		}
	}
}

func (c *Client) end(dead bool) error {
	c.runner.closing.Store(true)
	// Kill asks first and may then wait forever for a reply; only the end of the
	// process lets it continue.
	collected := make(chan struct{})
	go func() {
		defer close(collected)
		c.plugin.Kill()
	}()
	var err error
	if state, since := c.awaitEnd(); state != "" {
		if !dead {
			err = plugin.Errorf(plugin.Timeout, "%s did not shut down within %v, the process %s; it was killed%s", c,
				since.Round(time.Millisecond), state, c.quoteStderr())
		}
		c.runner.child.kill()
		// Only a process stuck in the kernel outlives this.
		if !waitFor(c.runner.child.exited, mostKillTimeouts*c.config.KillTimeout) {
			c.finish(nil)
			c.runner.descriptors.Close()
			return plugin.Errorf(plugin.Timeout, "%s cannot be killed: it is stuck in the kernel", c)
		}
	}
	<-collected
	c.runner.descriptors.Close()
	c.goroutines.Wait()
	if err == nil && !dead && !c.runner.child.clean {
		err = plugin.Errorf(plugin.PluginDied, "%s %s as it was closed%s", c, c.runner.child.status, c.quoteStderr())
	}
	return err
}

func waitFor(done <-chan struct{}, timeout time.Duration) bool {
	select {
	case <-done:
		return true
	default:
	}
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}
