-- Moves values, oldest first, onto a list of our own.   KEYS: the list, our list   ARGV: the largest number of values
local moved = {}
while #moved < tonumber(ARGV[1]) do
  local value = redis.call("LMOVE", KEYS[1], KEYS[2], "RIGHT", "LEFT")
  if not value then break end
  moved[#moved + 1] = value
end
return moved
