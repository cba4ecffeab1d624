use strict;
use Fcntl qw(:mode);

sub show {
	my ($dir) = @_;
	opendir(my $d, $dir) or die "$dir: $!";
	for my $name (sort grep { $_ ne '.' && $_ ne '..' } readdir $d) {
		my $p = "$dir/$name";
		my @st = lstat($p) or die "$p: $!";
		if (S_ISLNK($st[2])) {
			print "$p -> ", readlink($p), "\n";
		} elsif (S_ISDIR($st[2])) {
			print "$p/\n";
			show($p);
		} else {
			open(my $f, '<', $p) or die "$p: $!";
			my $text = join '', <$f>;
			$text =~ s/\n/|/g;
			printf "%s %o %s\n", $p, $st[2] & 0100, $text;
		}
	}
}

if ($ARGV[0] eq 'show') {
	show('.');
	exit;
}

my ($renameat2, $links, $seed, $steps) = map { $_ + 0 } @ARGV;
srand($seed);
my @names = qw(a b c d);
sub name { join '/', map { $names[int rand @names] } 1 .. 1 + int rand 4 }

# likely is a name of which something is known to be there, if one is found soon.
sub likely {
	my ($is) = @_;
	my $p;
	for (1 .. 8) {
		last if $is->($p = name());
	}
	return $p;
}
sub there { lstat $_[0] }
sub above { $_[0] !~ m{(.*)/} || -d $1 }

sub rename2 {
	my ($from, $to, $flags) = @_;
	return syscall($renameat2, -100, $from, -100, $to, $flags) == 0;
}

sub put {
	my ($how, $p, $text) = @_;
	return 0 if -l $p; # it may lead to itself, or to a directory
	open(my $f, $how, $p) or return 0;
	print $f $text;
	return close($f);
}

my @ops = (
	sub { mkdir $_[0] }, sub { mkdir $_[0] },
	sub { put('>', $_[0], "new $_[2]\n") }, sub { put('>', $_[0], "new $_[2]\n") },
	sub { put('>>', $_[0], "more $_[2]\n") },
	sub { unlink $_[0] },
	sub { rmdir $_[0] },
	(sub { rename2($_[0], $_[1], 0) }) x 4,
	(sub { rename2($_[0], $_[1], 1) }) x 4, # RENAME_NOREPLACE
	(sub { rename2($_[0], $_[1], 2) }) x 3, # RENAME_EXCHANGE
	sub { $links && link $_[0], $_[1] },
	sub { symlink $_[1], $_[0] },
	sub { !-l $_[0] && -f $_[0] && chmod((0644, 0755)[rand 2], $_[0]) },
);
for my $n (1 .. $steps) {
	my $op = int rand @ops;
	my ($from, $to) = (likely($op < 4 ? \&above : \&there), likely(rand() < 0.5 ? \&above : \&there));
	print "$n: $op $from $to ", ($ops[$op]->($from, $to, "$seed/$n") ? 'ok' : 'no'), "\n";
}
