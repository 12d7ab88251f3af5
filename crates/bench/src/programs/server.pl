# A small in-memory store of records: one request a line on standard input, one answer a line.
use strict;
use warnings;

my %store;
my @answers;

while (my $line = <STDIN>) {
    my $verb = substr $line, 0, 1;
    chomp $line;
    if ($verb eq 'G') {
        my $record = $store{substr $line, 2};
        my $sum = 0;
        $sum += $_ for @{$record->{scores}};
        push @answers, join(' ', $record->{name}, $record->{cents}, $sum,
            unpack('%32C*', $record->{note}), $record->{token}) . "\n";
    } elsif ($verb eq 'P') {
        my ($id, $name, $cents, $scores, $token, $note) = split /\t/, substr($line, 2);
        # Numbers, as a program would hold them that calculates.
        my @scores = map { $_ + 0 } split /,/, $scores;
        $store{$id} = {
            name => $name, cents => $cents + 0, scores => \@scores, token => $token, note => $note,
        };
        push @answers, "ok $id\n";
    } elsif ($verb eq '.') {
        syswrite STDOUT, join('', @answers);
        @answers = ();
    } else {
        push @answers, "unknown request\n";
    }
}
