package hostimage

import "maps"

// fixed are files with the same contents in every image.
var fixed = map[string]string{
	// Without a name server glibc asks the machine itself, where nobody
	// listens: a look-up fails at once, and never after a time-out.
	"etc/resolv.conf": "# This sandbox has no network: there are no names.\nnameserver 127.0.0.1\noptions timeout:0 attempts:1\n",
	"etc/nsswitch.conf": `passwd:    files
group:     files
shadow:    files
gshadow:   files
hosts:     files dns
networks:  files
protocols: files
services:  files
ethers:    files
rpc:       files
`,
	"etc/profile": `# Login shells inside a sandbox.
if [ -z "$PATH" ]; then
	PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
	export PATH
fi
if [ -n "$BASH_VERSION" ] && [ -r /etc/bash.bashrc ]; then
	. /etc/bash.bashrc
fi
`,
	"etc/bash.bashrc": `# Interactive bash inside a sandbox.
case $- in
*i*)
	PS1='\u@\h:\w\$ '
	shopt -s checkwinsize
	;;
esac
`,
	// What Debian's pip guards is a machine's own Python, and this is none's.
	"etc/pip.conf": "[global]\nbreak-system-packages = true\n",
	"etc/fstab":    "",
	"etc/motd":     "",
}

// links are the skeleton's own links.
var links = map[string]string{
	"etc/mtab": "../proc/self/mounts",
	"var/run":  "/run",
	"var/lock": "/run/lock",
}

// generated returns all files that are written anew, by path.
func generated(hostname, hostPasswd, hostGroup, shell string) map[string]string {
	out := maps.Clone(fixed)
	out["etc/hostname"] = hostname + "\n"
	out["etc/hosts"] = "127.0.0.1\tlocalhost " + hostname + "\n::1\tlocalhost ip6-localhost ip6-loopback\n"
	out["etc/passwd"] = passwd(hostPasswd, shell)
	out["etc/group"] = group(hostGroup)
	return out
}
