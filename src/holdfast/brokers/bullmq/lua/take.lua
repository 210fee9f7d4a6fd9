-- Takes up to a number of jobs. Returns also how long the rate limit lasts, and when the next delay ends.
-- KEYS: those of BullMQ's moveToActive   ARGV: prefix, packed options, how many, the field for the reason of a pause
local now = now_text()
local taken, limited, after = {}, 0, 0
for i = 1, tonumber(ARGV[3]) do
  local job = moveToActive(KEYS, {ARGV[1], now, ARGV[2]})
  if type(job[1]) ~= "table" then
    limited, after = tonumber(job[3] or 0), job[4] and tonumber(job[4]) or 0
    break
  end
  taken[i] = {job[1], job[2]}
end
if #taken > 0 then
  -- The queue is not paused now. A resume by Node does not delete our reason, and Node's next pause must not show it.
  redis.call("HDEL", KEYS[9], ARGV[4])
end
return {taken, limited, after > 0 and math.max(1, math.ceil(after - tonumber(now))) or 0}
