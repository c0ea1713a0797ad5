# Hashes, arrays, strings that grow, regular expressions, sorting, fork and a pipe.
use strict;
use warnings;

my $state = 12345;
sub random { $state = ($state * 1103515245 + 12345) % 2147483648; return $state }

my %count;
for my $i (1 .. 200000) { my $word = 'w' . (random() % 5000); $count{$word}{total} += $i; push @{$count{$word}{where}}, $i }
my @top = (sort { $count{$b}{total} <=> $count{$a}{total} || $a cmp $b } keys %count)[0 .. 4];
print join(',', map { "$_=$count{$_}{total}/" . scalar @{$count{$_}{where}} } @top), "\n";

my $text = '';
$text .= chr(97 + random() % 26) x (random() % 50) . ' ' for 1 .. 40000;
print length($text), "\n";
my $vowels = () = $text =~ /[aeiou]+/g;
(my $changed = $text) =~ s/(\w)\1{3,}/<$1>/g;
print "$vowels ", length($changed), ' ', unpack('%32C*', $changed), "\n";

my @sorted = sort { $a <=> $b } map { random() } 1 .. 100000;
print "$sorted[0] $sorted[50000] $sorted[-1]\n";
my @objects = map { { name => "n$_", list => [1 .. $_ % 50] } } 1 .. 20000;
@objects = grep { @{$_->{list}} > 25 } @objects;
print scalar(@objects), "\n";
undef %count;

my $pid = open(my $from_child, '-|') // die "fork: $!";
if (!$pid) { my @l = map { $_ x 100 } 1 .. 10000; print scalar(@l), ' ', length(join '', @l), "\n"; exit 0 }
print "child says: ", <$from_child>;
close $from_child;
local $SIG{__DIE__} = sub { print "dying\n" };
eval { die { code => 5, text => 'x' x 100000 } };
print "caught $@->{code} ", length $@->{text}, "\n";
exit 3;
