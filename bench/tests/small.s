# The input of the coverage command's test. Assembled by
#   as small.s -o small.o && ld -pie -z noseparate-code --build-id=none -e plain small.o -o small.elf && strip -g small.elf
.intel_syntax noprefix
.macro function name
.p2align 4
.globl \name
.type \name, @function
\name:
.endm
.macro ends name
.size \name, . - \name
.endm

.text
function plain
	push rbp
	mov rbp, rsp
	lea eax, [rdi+1]
	pop rbp
	ret
ends plain

# A switch; its table is in .rodata.
function switch
	cmp edi, 2
	ja 9f
	lea rdx, [rip+table]
	mov edi, edi
	movsxd rax, dword ptr [rdx+rdi*4]
	add rax, rdx
	jmp rax
.Lzero:	mov eax, 1
	ret
.Lone:	mov eax, 2
	ret
9:	xor eax, eax
	ret
ends switch

# Nobody knows where it leads.
function computed
	mov rax, [rdi+8]
	jmp rax
	mov eax, 1
	ret
ends computed

# Strings inside, as libcrypto has.
function strings
	lea rax, [rip+1f]
	ret
1:	.asciz "PUSH QPXSZ[]"
ends strings

function falls_through
	mov eax, 1
	add eax, edi
ends falls_through
.globl fallen_into
.type fallen_into, @function
fallen_into:
	jmp plain
ends fallen_into

function with_cold_part
	test edi, edi
	js with_cold_part.cold
	mov eax, edi
	ret
ends with_cold_part

function never_returns
	call plain
	ud2
ends never_returns

.section .text.unlikely, "ax"
.type with_cold_part.cold, @function
with_cold_part.cold:
	neg edi
	mov eax, edi
	ret
ends with_cold_part.cold

# Of one instruction, the last of its section.
function only_ret
	ret
ends only_ret

.section .rodata
.p2align 2
table:	.long .Lzero-table, .Lone-table, .Lzero-table
