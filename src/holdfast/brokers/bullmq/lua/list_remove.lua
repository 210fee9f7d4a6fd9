-- Removes each value once; of equal values, the oldest.   KEYS: the list   ARGV: values
for i = 1, #ARGV do
  redis.call("LREM", KEYS[1], -1, ARGV[i])
end
return 0
