-- Reads the queue's events, and returns the jobs that other systems' workers completed or failed.
-- KEYS: events, the spans of events that we wrote   ARGV: position ("" for the latest events), how many
local function id_of(text)
  local ms, seq = string.match(text, "^(%d+)-(%d+)$")
  return {tonumber(ms), tonumber(seq)}
end
local function before(a, b) return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2]) end

local position, count = ARGV[1], tonumber(ARGV[2])
local events
if position == "" then
  local latest = redis.call("XREVRANGE", KEYS[1], "+", "-", "COUNT", count)
  events = {}
  for i = #latest, 1, -1 do events[#events + 1] = latest[i] end
else
  events = redis.call("XRANGE", KEYS[1], "(" .. position, "+", "COUNT", count)
end
if #events == 0 then return {{}, position, 0} end

-- Spans do not overlap, because scripts run one after another. So one pass over both lists finds the events that are
-- in no span of ours.
local first = id_of(events[1][1])
local spans = {}
for _, span in ipairs(redis.call("ZRANGEBYSCORE", KEYS[2], string.format("%.0f", first[1]), "+inf")) do
  local from, to = string.match(span, "^(%S+) (%S+)$")
  spans[#spans + 1] = {id_of(from), id_of(to)}
end
table.sort(spans, function(a, b) return before(a[2], b[2]) end)

local ended, at = {}, 1
for _, event in ipairs(events) do
  local fields = {}
  for i = 1, #event[2], 2 do fields[event[2][i]] = event[2][i + 1] end
  local kind = fields["event"]
  if kind == "completed" or kind == "failed" then
    local id = id_of(event[1])
    while spans[at] and before(spans[at][2], id) do at = at + 1 end
    if not (spans[at] and before(spans[at][1], id)) then
      local value = fields[kind == "completed" and "returnvalue" or "failedReason"]
      ended[#ended + 1] = {fields["jobId"], kind, value or "", string.format("%.0f", id[1])}
    end
  end
end
return {ended, events[#events][1], #events == count and 1 or 0}
