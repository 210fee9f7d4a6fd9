-- Pushes each message onto the list, unless a message with its id was pushed before. Returns 0 when the key is no list.
-- KEYS: the list, the ids that were sent   ARGV: how long ids are kept (milliseconds), then id and message
local kind = redis.call("TYPE", KEYS[1])["ok"]
if kind ~= "none" and kind ~= "list" then return 0 end -- the key belongs to another program
local now, keep = now_ms(), tonumber(ARGV[1])
redis.call("ZREMRANGEBYSCORE", KEYS[2], "-inf", string.format("%.0f", now - keep))
for i = 2, #ARGV, 2 do
  if redis.call("ZADD", KEYS[2], "NX", string.format("%.0f", now), ARGV[i]) == 1 then
    redis.call("LPUSH", KEYS[1], ARGV[i + 1])
  end
end
redis.call("PEXPIRE", KEYS[2], ARGV[1])
return 1
