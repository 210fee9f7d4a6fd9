-- Adds a batch of jobs. With revive, a finished job of the same id is removed first.
-- KEYS: wait paused meta id completed delayed active events marker prioritized pc failed repeat
-- ARGV: prefix, then for each job: id, name, data, packed options, kind, revive
local prefix = ARGV[1]
local now = now_ms()
for i = 2, #ARGV, 6 do
  local id, name, data, opts, kind = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
  local key = prefix .. id
  if ARGV[i + 5] == "1" and redis.call("EXISTS", key) == 1
      and (redis.call("ZSCORE", KEYS[5], id) or redis.call("ZSCORE", KEYS[12], id)) then
    removeJob({key, KEYS[13]}, {id, "0", prefix})
  end
  local args = {cmsgpack.pack({prefix, id, name, now}), data, opts}
  if kind == "delayed" then
    addDelayedJob({KEYS[9], KEYS[3], KEYS[4], KEYS[6], KEYS[5], KEYS[8]}, args)
  elseif kind == "prioritized" then
    addPrioritizedJob({KEYS[9], KEYS[3], KEYS[4], KEYS[10], KEYS[6], KEYS[5], KEYS[7], KEYS[8], KEYS[11]}, args)
  else
    addStandardJob({KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]}, args)
  end
end
return 0
