-- Finds jobs that were taken with tokens whose reply was lost, and locks them again with another token.
-- KEYS: active   ARGV: prefix, new token, lease in milliseconds, lost tokens
local lost, found = {}, {}
for i = 4, #ARGV do lost[ARGV[i]] = true end
for _, id in ipairs(redis.call("LRANGE", KEYS[1], 0, -1)) do
  local key = ARGV[1] .. id
  local token = redis.call("GET", key .. ":lock")
  if token and lost[token] then
    redis.call("SET", key .. ":lock", ARGV[2], "PX", ARGV[3])
    found[#found + 1] = {redis.call("HGETALL", key), id}
  end
end
return found
