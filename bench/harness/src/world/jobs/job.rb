# Objects, strings, hashes and a parser, and a rest.
require "json"
require "set"

random = Random.new(7)
words = Array.new(60_000) { Array.new(3 + random.rand(9)) { (97 + random.rand(26)).chr }.join }
index = Hash.new { |hash, key| hash[key] = [] }
words.each_with_index { |word, place| index[word[0, 3]] << place }
puts index.size, index.values.map(&:size).max

records = words.each_with_index.map { |word, place| { "id" => place, "word" => word, "tags" => [word.reverse, word.upcase] } }
text = JSON.generate(records)
again = JSON.parse(text)
puts text.bytesize, again.sum { |record| record["tags"][0].size }

seen = Set.new
30.times { |round| words.each { |word| seen << word.tr("a-m", "n-z")[round % 3..] } }
puts seen.size

document = +""
200_000.times { |number| document << "line #{number}: #{words[number % words.size]}\n" }
puts document.scan(/a[b-y]*z/).size, document.gsub(/\d+/) { |digits| (digits.to_i * 2).to_s }.bytesize
puts "ready"
$stdout.flush
$stdin.read
