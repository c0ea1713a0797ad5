<?php
// What PHP's extensions allocate in C libraries, beside PHP's own heap: XML, regular expressions, strings of several
// bytes, SQL, compression, and a handle of curl.
$document = new DOMDocument();
$root = $document->appendChild($document->createElement('list'));
for ($i = 0; $i < 5000; $i++) {
    $entry = $root->appendChild($document->createElement('entry', "value $i"));
    $entry->setAttribute('number', (string)($i * 7919 % 5000));
}
$text = $document->saveXML();
$parsed = simplexml_load_string($text);
$found = (new DOMXPath($document))->query('//entry[@number < 100]');
echo count($parsed->entry), ' ', $found->length, ' ', md5($text), "\n";

$database = new SQLite3(':memory:');
$database->exec('create table words (word text, length integer)');
$statement = $database->prepare('insert into words values (:word, :length)');
$database->exec('begin');
for ($i = 0; $i < 20000; $i++) {
    $word = str_repeat(chr(97 + $i % 26), 1 + $i % 300);
    $statement->bindValue(':word', $word);
    $statement->bindValue(':length', strlen($word));
    $statement->execute();
}
$database->exec('commit');
echo $database->querySingle("select count(distinct word) || ' ' || sum(length) from words"), "\n";

$many = str_repeat("größer und länger, ", 20000);
echo mb_strlen($many), ' ', preg_match_all('/l(ä|a)ng/u', $many), ' ', md5(mb_strtoupper($many)), "\n";
$packed = gzcompress($many, 9);
echo gzuncompress($packed) === $many ? 'same' : 'other', "\n";

$curl = curl_init('file://' . __FILE__);
curl_setopt($curl, CURLOPT_RETURNTRANSFER, true);
echo strlen(curl_exec($curl)) === filesize(__FILE__) ? 'read' : 'not read', "\n";
curl_close($curl);
echo implode(' ', array_intersect(['curl', 'dom', 'mbstring', 'mysqli', 'sqlite3', 'xml'], get_loaded_extensions())), "\n";
exit(7);
