-- Removes jobs that no worker holds.   KEYS: repeat   ARGV: prefix, then ids
for i = 2, #ARGV do
  removeJob({ARGV[1] .. ARGV[i], KEYS[1]}, {ARGV[i], "0", ARGV[1]})
end
return 0
