package arch

// byPath are the functions that use paths all the same: each has a reason why
// no guest can change what is above the last part of its names, or why it does
// not matter. A directory of the user's that holds Carboy's state is shown to no
// sandbox (server/hostdir); state directories have mode 0700.
var byPath = []struct{ dir, functions, why string }{
	{
		dir: "internal/backend/instance",
		functions: `Backend.Instances Backend.Claim Backend.Grow Backend.Held Backend.replaceDisk readGrown Backend.Forget Backend.prepare Backend.resume Backend.Suspend Backend.discard Backend.end
			Backend.makeDisk Backend.note Backend.sweep Open WriteJSON changesMain openLayers exists forgetParts markSince readRecord
			Compose composer.groups saveMain mkdir OpenDisks Disks.spawn wholeOrder.view`,
		why: "a state directory: the instance's own, of which a guest sees what is mounted below it, and empty mount points in it",
	},
	{
		dir:       "internal/backend/instance",
		functions: "layerOpener.open diskLayer.openHost",
		why:       "a state directory's disk image, and directories that are lower layers, by the names by which a start mounts them",
	},
	{
		dir:       "internal/backend/instance",
		functions: "legacy syncLegacy",
		why:       "the directory of the agent's socket of older versions: its last part is no link, and nothing there is believed",
	},
	{
		dir:       "internal/backend/instance",
		functions: "Backend.addSnapshot composer.saved isEmpty",
		why:       "a snapshot's directory, with a name for each layer, which the copying process made",
	},
	{
		dir:       "internal/backend/instance",
		functions: "shownGroup.show",
		why:       "control groups, and a file system that no guest has written to yet",
	},
	{
		dir:       "internal/backend/instance",
		functions: "composer.bindMapped",
		why:       "layers of images and of snapshots, and mount points: directories of ours, and the last part is no link",
	},
	{
		dir:       "internal/backend/instance",
		functions: "composer.volume",
		why:       "the root of a volume's file system, of which a guest sees one directory; it is no link",
	},
	{
		dir:       "internal/beneath",
		functions: "OpenSame",
		why:       "a directory of the user's: it must be the inode that was accepted, wherever its path leads",
	},
	{
		dir:       "internal/backend/instance",
		functions: "openAccepted",
		why:       "a directory of the user's: it must be the inode that was accepted, wherever its path leads",
	},
	{
		dir:       "internal/backend/instance",
		functions: "Groups.Add Groups.Enter Groups.Unified HostCount Backend.linkEnd Backend.killStrays Backend.stray diskUsage Backend.commandsOf addHolder eachMount foreign foreignFile liveView mounters lockedFile",
		why:       "the host's /proc and control groups: the kernel makes their names",
	},
	{
		dir:       "internal/backend/instance",
		functions: "Backend.handOver installAgent",
		why:       "the cache, which is ours",
	},
	{
		dir:       "internal/backend/process",
		functions: "ownMount",
		why:       "the agent's program, in the cache, which no guest is shown; any other file than the one that was handed over is refused",
	},
	{
		dir:       "internal/backend/gvisor",
		functions: "sameProgram writeProgram",
		why:       "the state directory of a suspended box",
	},
	{
		dir:       "internal/backend/gvisor/boot",
		functions: "entry nullStdio ownIDs",
		why:       "a descriptor's own name, /dev/null, and the host's /proc",
	},
	{
		dir:       "internal/backend/process",
		functions: "fork launchHere",
		why:       "the host's root, the agent in the cache, and the mount point of the box's root",
	},
	{
		dir:       "internal/beneath",
		functions: "Dir.Chmod Dir.Link Dir.OpenRegular OpenDir OpenNamed reopen",
		why:       "a descriptor's own name; the directory that all begins with, whose last part is no link; a file of whoever asks from outside",
	},
	{
		dir:       "internal/durable",
		functions: "Rename Sweep openDir",
		why:       "their callers', each of whom has a reason of its own here",
	},
	{
		dir:       "internal/langbot",
		functions: "ledger.fold ledger.take ledger.write openLedger readMark",
		why:       "a state directory: what hosts were granted",
	},
	{
		dir: "internal/image",
		functions: `Open Store.Remove Store.bury Store.buryLayer Store.claim Store.keepLayer Store.names Store.sweepPartial
			Store.writeRecord exists job.finish job.pull job.spool job.unpack lockDir openBlob readRecord
			registry.download syncFS`,
		why: "the image store, which is ours: what is in a layer is unpacked and deleted from an open directory",
	},
	{
		dir:       "internal/image/layer",
		functions: "openTree openBelow unpacker.fifo",
		why:       "the store's new, empty directory, and those of the layers below; a descriptor's own name",
	},
	{
		dir:       "internal/pod/host",
		functions: "Backend.Start Backend.Stderr Dir.made Dir.Remove executable",
		why:       "a runtime directory, which no guest is shown, and the program that the operator names",
	},
	{
		dir:       "internal/pod/host",
		functions: "environ others place",
		why:       "the host's /proc",
	},
	{
		dir:       "internal/pod/service",
		functions: "Service.Adopt cursors.save openCursors",
		why:       "a directory of the daemon's own, which no guest is shown",
	},
	{
		dir:       "internal/pod/boxed",
		functions: "Backend.Heard Backend.Sweep",
		why:       "a directory of the daemon's own, which no guest is shown",
	},
	{
		dir:       "internal/pod/transcript",
		functions: "Open Log.shorten Remove",
		why:       "a directory of the daemon's own, which no guest is shown",
	},
	{
		dir:       "internal/pod/mirror",
		functions: "Shown Write read",
		why:       "a runtime directory: what tools are shown of records",
	},
	{
		dir:       "internal/session",
		functions: "seen.away seen.note",
		why:       "a state directory: when the daemon ran last",
	},
	{
		dir:       "internal/process",
		functions: "Sweep openLedger removeLedger",
		why:       "a state directory: places in the output of processes",
	},
	{
		dir:       "internal/session/hostroot",
		functions: "New Roots.MakeDefault realPath",
		why:       "the operator's settings, before there is a session: what is below the roots is opened part by part",
	},
	{
		dir:       "internal/session/hostroot",
		functions: "described",
		why:       "a descriptor's own name, which must lead to the same inode",
	},
	{
		dir:       "internal/session/quota/project",
		functions: "deviceOf",
		why:       "the host's /proc and /dev",
	},
	{
		dir:       "internal/langbot/profile",
		functions: "isDir",
		why:       "it decides whether a skill is mentioned; to be mounted it is opened from a root",
	},
	{
		dir:       "internal/skill",
		functions: "Open Store.sweepAll",
		why:       "the operator's directories, as they are configured: below them names are an os.Root's",
	},
	{
		dir:       "internal/skill",
		functions: "Store.spool",
		why:       "files without a name, wherever that is",
	},
	{
		dir:       "internal/skill",
		functions: "openAll openBelow",
		why:       "a descriptor's own name",
	},
	{
		dir:       "internal/snapshot",
		functions: "New Store.Delete Store.Keep Store.Open Store.discard Store.read writeRecord",
		why:       "a state directory: what was copied lies below names of ours, and is deleted from an open directory",
	},
	{
		dir:       "internal/snapshot/tree",
		functions: "copier.attributes copier.xattrs getXattr listXattrs",
		why:       "a descriptor's own name, and in it one that is followed in the copy alone, where nobody else writes",
	},
	{
		dir: "internal/template",
		functions: `archives.add archives.count archives.link archives.makeRoom archives.open archives.removeFound
			archives.removeOld archives.removeParts logs.open logs.read logs.remove`,
		why: "a state directory: archives under their digests, which are unpacked inside, and logs",
	},
	{
		dir:       "internal/volume",
		functions: `Open Service.discard Service.grow Service.load Service.make Service.moved openKey readRecord writeWhole`,
		why:       "a state directory: of a volume's a guest sees what is in its image, or below plain",
	},
	{
		dir:       "internal/volume/content",
		functions: "enter pivot",
		why:       "the volume's root directory, before anything of it is read, and the process's own root after",
	},
	{
		dir:       "internal/volume/tree",
		functions: "At Make Tree.Grow Tree.Used",
		why:       "a state directory: the volume's own, beside what guests see of it",
	},
}
