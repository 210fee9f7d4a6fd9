-- Takes up to a number of jobs; the last element says why there are no more: the rate limit, or the next delay.
-- KEYS: as moveToActive   ARGV: prefix, packed options, how many, the field for the reason of a pause
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
if #taken > 0 then -- so it is not paused; a resume of Node's leaves our reason behind, and it must not be taken for
  redis.call("HDEL", KEYS[9], ARGV[4]) -- that of Node's next pause
end
return {taken, limited, after > 0 and math.max(1, math.ceil(after - tonumber(now))) or 0}
