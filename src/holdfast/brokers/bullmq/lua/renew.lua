-- Extends locks; returns the positions of the locks that were lost.
-- KEYS: stalled   ARGV: prefix, lease in milliseconds, then for each delivery: id, token
local lost = {}
for i = 3, #ARGV, 2 do
  local failed = extendLocks(KEYS, {ARGV[1], cmsgpack.pack({ARGV[i + 1]}), cmsgpack.pack({ARGV[i]}), ARGV[2]})
  if #failed > 0 then lost[#lost + 1] = (i - 3) / 2 end
end
return lost
