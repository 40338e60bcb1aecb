-- Removes the bookkeeping of a namespace that has no records. KEYS[1] <namespace>:store
-- KEYS[2] <namespace>:index  KEYS[3] <namespace>:removed  KEYS[4] <namespace>:nodes
local left = redis.call('ZCARD', KEYS[2])
if left > 0 then return left end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
return 0
