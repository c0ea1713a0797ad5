% Matrices, cells, strings and structures, and a rest.
rand("twister", 7);
a = rand(500);
printf("%.6f\n", trace(inv(a' * a + eye(500))));
total = 0;
for i = 1:300
  b = rand(200, 200 + i);
  total += sum(sum(b * b')) / numel(b);
end
printf("%.6f\n", total);
words = cell(1, 20000);
for i = 1:20000
  words{i} = char(97 + floor(26 * rand(1, 8)));
end
printf("%d %d\n", numel(unique(cellfun(@(w) w(1:3), words, "UniformOutput", false))), numel(strjoin(words, " ")));
s = struct();
for i = 1:4000
  s.(words{i}) = rand(1, 20);
end
printf("%d %.6f\n", numfields(s), sum(cellfun(@sum, struct2cell(s))));
x = [];
for i = 1:20000
  x(end + 1) = i;
end
printf("%d\n", sum(x));
printf("%.6f\n", sum(abs(fft(rand(1, 2 ^ 20)))));
puts("ready\n");
fflush(stdout);
fgetl(stdin);
