-- Takes up to a number of jobs; the last element says why there are no more: the rate limit, or the next delay.
-- KEYS: as moveToActive   ARGV: prefix, packed options, how many
local now = now_text()
local taken = {}
for i = 1, tonumber(ARGV[3]) do
  local job = moveToActive(KEYS, {ARGV[1], now, ARGV[2]})
  if type(job[1]) ~= "table" then
    local after = job[4] and tonumber(job[4]) or 0
    return {taken, tonumber(job[3] or 0), after > 0 and math.max(1, math.ceil(after - tonumber(now))) or 0}
  end
  taken[i] = {job[1], job[2]}
end
return {taken, 0, 0}
