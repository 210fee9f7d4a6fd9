-- Removes each value once, the oldest of several that are equal.   KEYS: the list   ARGV: values
for i = 1, #ARGV do
  redis.call("LREM", KEYS[1], -1, ARGV[i])
end
return 0
