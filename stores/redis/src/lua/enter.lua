-- The beginning of every script that touches records: it checks that the records have the same history as when they were
-- last touched, and gives the namespace a new generation if acknowledged writes may be missing.
--
-- KEYS[1] <namespace>:store  KEYS[2] <namespace>:index  KEYS[3] <namespace>:removed
-- ARGV[1] fresh random id    ARGV[2] replicas that the caller waits for, and 'new-generation' if it does not rely on them
-- ARGV[3] and ARGV[4]        generation and highest revision that the caller has seen confirmed

local STORE, INDEX, REMOVED = KEYS[1], KEYS[2], KEYS[3]
local PREFIX = string.sub(STORE, 1, -6)
local NODES = PREFIX .. 'nodes'
-- A promoted replica may lack writes that were never confirmed. Their revisions are never used again.
local JUMP = 1000000

local function digits(number)
  return string.format('%.0f', number)
end

local function is_node(name)
  return string.sub(name, 1, 5) == 'node:'
end

-- The revision up to which the set of node names is complete. It is the score of a member that is not a name, so that it is
-- deleted with the set.
local UPTO = 'upto'
local function noded()
  return tonumber(redis.call('ZSCORE', NODES, UPTO) or 0) or 0
end

-- A replica that was promoted has received replication during its life; a server that came back from its own disk,
-- which may be old, has not. Both name the former history as their second one.
local function was_a_replica()
  local received = string.match(redis.call('INFO', 'stats'), 'total_net_repl_input_bytes:(%d+)')
  return received ~= nil and tonumber(received) > 0
end

-- One record: its version and value, or nil. A record that was written by hand, without a version, gets one from its content.
local function fetch(key)
  local pair = redis.pcall('HMGET', key, 'version', 'value')
  if pair.err then
    local text = redis.pcall('GET', key)
    if type(text) == 'table' then
      -- Neither a hash nor a string, or not ours to read just now, as while a cluster moves the slot.
      if string.find(pair.err, 'WRONGTYPE', 1, true) then return 'raw.type', '' end
      error(pair, 0)
    end
    if not text then return nil end
    return 'raw.' .. redis.sha1hex(text), text
  end
  if pair[1] and pair[2] then return pair[1], pair[2] end
  if pair[2] then return 'raw.' .. redis.sha1hex(pair[2]), pair[2] end
  if pair[1] or redis.call('EXISTS', key) == 1 then return 'raw.novalue', '' end
  return nil
end

local space = redis.call('HMGET', STORE, 'generation', 'lineage', 'revision', 'wait', 'from', 'to')
local generation, lineage = space[1], space[2]
local revision, wait = tonumber(space[3] or 0) or 0, tonumber(space[4] or 0) or 0
local waited, relied = string.match(ARGV[2], '^(%d+)(.*)$')
local seen = tonumber(ARGV[4])
-- A failover may keep the generation only if all clients wait for replicas and rely on that.
local mine = relied == '' and tonumber(waited) or 0
do
  local replication = redis.call('INFO', 'replication')
  local here = string.match(replication, 'master_replid:(%x+)')
  local from, to = tonumber(space[5] or 0) or 0, tonumber(space[6] or 0) or 0
  local renewed = not generation
  if generation and lineage ~= here then
    renewed = wait == 0 or string.match(replication, 'master_replid2:(%x+)') ~= lineage or not was_a_replica()
    from, to = revision, revision + JUMP
    revision = to
  end
  -- The caller has seen a write that this history lacks.
  local lost = ARGV[3] == generation and (seen > revision or (seen > from and seen < to))
  if lost then revision = math.max(revision, seen) + JUMP end
  if renewed or lost then generation, wait, from, to = ARGV[1], mine, 0, 0 end
  if generation ~= space[1] or lineage ~= here then
    redis.call('HSET', STORE, 'generation', generation, 'lineage', here, 'revision', digits(revision), 'wait',
      digits(wait), 'from', digits(from), 'to', digits(to))
  elseif waited ~= '0' then
    -- Something to wait for, so that what is shown is on the replicas too.
    redis.call('HSET', STORE, 'revision', digits(revision))
  end
end
-- A client that waits for fewer replicas than the rule so far must first store that, replicas included.
if mine < wait then return {'lower', digits(wait)} end
