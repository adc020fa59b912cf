# gdb commands that read what nanoprobe has in a process. docs/debugging.md says how to load them.
#
#   arena ADDRESS    where the arena is; sets $control and $image. The others need it
#   regions          our mappings
#   sites            patched places: address, length, tactic, original and patched bytes
#   origin PC        the original address of a pc in a detour
#   context N        the Nth thread's context
set pagination off

define arena
  set $arena = (unsigned long)$arg0
  set $control = (struct np_control *)$arena
  set $image = (struct np_image *)0
  set $region = (struct np_region *)($arena + $control->regions_offset)
  set $last = $region + $control->region_count
  while $region < $last
    if $region->kind == NP_REGION_CODE && *(unsigned long *)$region->address == $control->magic
      set $image = (struct np_image *)$region->address
    end
    set $region++
  end
  printf "version %u, tracer %u, state ", $control->version, $control->tracer_pid
  output (enum np_state)$control->state
  printf ", %u sites, %u threads\n", $control->site_count, $control->context_count
end

define regions
  set $region = (struct np_region *)($arena + $control->regions_offset)
  set $last = $region + $control->region_count
  while $region < $last
    printf "%#lx %#lx bytes ", $region->address, $region->bytes
    output (enum np_region_kind)$region->kind
    printf "\n"
    set $region++
  end
end

define sites
  set $site = (struct np_site *)($arena + $control->sites_offset)
  set $last = $site + $control->site_count
  while $site < $last
    printf "%#lx length %u tactic %u original ", $site->address, $site->length, $site->tactic
    output/x $site->original
    printf " patched "
    output/x $site->patched
    printf "\n"
    set $site++
  end
end

# The tables that hold are those of the last row that is there (agent/redirects.c). An origin holds up to the next one.
define origin
  set $row = 0
  while ((unsigned char *)$image->rows)[$row + 1]
    set $row++
  end
  set $table = (struct np_redirect_table *)((struct np_tables *)$image->tables)[$row].origins
  set $entry = (struct np_redirect *)($table + 1)
  set $last = $entry + $table->count
  while $entry + 1 < $last && ($entry + 1)->from <= $arg0
    set $entry++
  end
  if $arg0 < $entry->from
    printf "not in a detour\n"
  else
    set $own = !$entry->to
    while $entry + 1 < $last && !$entry->to
      set $entry++
    end
    if $entry->to
      if $own
        printf "the detour's own code, before "
      end
      printf "%#lx: ", $entry->to & 0xffffffffffffff
      info symbol $entry->to & 0xffffffffffffff
    else
      printf "not in a detour\n"
    end
  end
end

define context
  set $context = (struct np_context *)($arena + $control->contexts_offset + $arg0 * $control->context_stride)
  print/x *$context
end
