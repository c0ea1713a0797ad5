<?php
// Arrays, strings, a document tree, a database in memory and multibyte text, and a rest.
ini_set('memory_limit', '1G');
mt_srand(7);
$words = [];
for ($i = 0; $i < 60000; $i++) {
    $word = '';
    for ($n = mt_rand(3, 12); $n > 0; $n--) $word .= chr(mt_rand(97, 122));
    $words[] = $word;
}
$index = [];
foreach ($words as $place => $word) $index[substr($word, 0, 3)][] = $place;
echo count($index), ' ', max(array_map('count', $index)), "\n";

for ($round = 0; $round < 6; $round++) {
    $document = new DOMDocument();
    $root = $document->appendChild($document->createElement('list'));
    foreach (array_slice($words, 0, 40000) as $place => $word) {
        $item = $root->appendChild($document->createElement('item', $word));
        $item->setAttribute('place', (string) $place);
    }
    $text = $document->saveXML();
    $again = new DOMDocument();
    $again->loadXML($text);
    $path = new DOMXPath($again);
    echo strlen($text), ' ', $path->query('//item[starts-with(., "ab")]')->length, "\n";

    $database = new SQLite3(':memory:');
    $database->exec('CREATE TABLE words (place INTEGER PRIMARY KEY, word TEXT, tail TEXT)');
    $database->exec('BEGIN');
    $insert = $database->prepare('INSERT INTO words VALUES (?, ?, ?)');
    foreach ($words as $place => $word) {
        $insert->bindValue(1, $place);
        $insert->bindValue(2, $word);
        $insert->bindValue(3, str_repeat($word, 5));
        $insert->execute();
        $insert->reset();
    }
    $database->exec('COMMIT');
    $database->exec('CREATE INDEX by_word ON words (word)');
    echo $database->querySingle("SELECT count(DISTINCT substr(word, 1, 2)) || ' ' || sum(length(tail)) FROM words"), "\n";
}

$total = 0;
foreach ($words as $word) $total += mb_strlen(mb_convert_encoding(mb_strtoupper($word . 'äöü'), 'UTF-16', 'UTF-8'), 'UTF-16');
echo $total, ' ', strlen(json_encode($words)), ' ', preg_match_all('/a[b-y]*z/', implode("\n", $words)), "\n";
echo "ready\n";
stream_get_contents(STDIN);
