/* Tests of OpenSSL's libcrypto: known answers, and results that must fit together. The library has hand-written
 * assembly for every unit of the processor, with tables between its functions. Linked statically, so that all of it
 * has symbols. */
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/obj_mac.h>
#include <openssl/provider.h>
#include <openssl/rsa.h>
#include "check.h"
#include "certificates.h"

static unsigned char data[20000];

/* A checksum of all results. A wrong result changes it, unless two checksums collide. */
static uint64_t sum = MIX_START;

static void add(const char *what, const unsigned char *bytes, size_t count)
{
	uint64_t own = MIX_START;
	for (size_t i = 0; i < count; i++)
		own = mix(own, bytes[i]);
	printf("%s %016lx\n", what, (unsigned long)own);
	sum = mix(sum, own);
}

static void digest(const char *name)
{
	unsigned char result[EVP_MAX_MD_SIZE];
	size_t count = 0;
	/* All lengths around a block, in pieces and at once. */
	for (size_t length = 0; length < 600; length += 61) {
		CHECK(EVP_Q_digest(NULL, name, NULL, data, length, result, &count));
		add(name, result, count);
	}
	CHECK(EVP_Q_digest(NULL, name, NULL, data, sizeof data, result, &count));
	add(name, result, count);
}

static void cipher(const char *name, size_t longest)
{
	static unsigned char sealed[sizeof data + 64], opened[sizeof data + 64];
	unsigned char key[64], vector[16], tag[16];
	for (int i = 0; i < 64; i++)
		key[i] = (unsigned char)(i * 5 + 1);
	for (int i = 0; i < 16; i++)
		vector[i] = (unsigned char)(i ^ 0x3c);
	EVP_CIPHER *method = EVP_CIPHER_fetch(NULL, name, NULL);
	CHECK(method != NULL);
	int authenticated = EVP_CIPHER_get_flags(method) & EVP_CIPH_FLAG_AEAD_CIPHER ? 1 : 0;
	for (size_t length = 32; length < longest; length = length * 3 + 16) {
		EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
		int count = 0, rest = 0, back = 0;
		CHECK(EVP_EncryptInit_ex2(context, method, key, vector, NULL));
		CHECK(EVP_EncryptUpdate(context, sealed, &count, data, (int)length));
		CHECK(EVP_EncryptFinal_ex(context, sealed + count, &rest));
		count += rest;
		if (authenticated)
			CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, 16, tag) > 0);
		CHECK(EVP_CIPHER_CTX_reset(context));
		CHECK(EVP_DecryptInit_ex2(context, method, key, vector, NULL));
		if (authenticated)
			CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, 16, tag) > 0);
		CHECK(EVP_DecryptUpdate(context, opened, &back, sealed, count));
		CHECK(EVP_DecryptFinal_ex(context, opened + back, &rest));
		CHECK((size_t)(back + rest) == length && memcmp(opened, data, length) == 0);
		EVP_CIPHER_CTX_free(context);
		add(name, sealed, (size_t)count);
		if (authenticated)
			add(name, tag, 16);
	}
	EVP_CIPHER_free(method);
}

/* The keys are random, so the check is that they fit each other. */
static void sign(EVP_PKEY *key, const char *digest_name)
{
	unsigned char signature[1024];
	size_t count = sizeof signature;
	CHECK(key != NULL);
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	CHECK(EVP_DigestSignInit_ex(context, NULL, digest_name, NULL, NULL, key, NULL) > 0);
	CHECK(EVP_DigestSign(context, signature, &count, data, 1000) > 0);
	EVP_MD_CTX_free(context);
	for (int wrong = 0; wrong < 2; wrong++) {
		signature[count / 2] ^= (unsigned char)wrong;
		context = EVP_MD_CTX_new();
		CHECK(EVP_DigestVerifyInit_ex(context, NULL, digest_name, NULL, NULL, key, NULL) > 0);
		CHECK((EVP_DigestVerify(context, signature, count, data, 1000) == 1) == !wrong);
		EVP_MD_CTX_free(context);
	}
	EVP_PKEY_free(key);
}

static void agree(const char *name)
{
	unsigned char ours[128], theirs[128];
	size_t our_count = sizeof ours, their_count = sizeof theirs;
	EVP_PKEY *a = EVP_PKEY_Q_keygen(NULL, NULL, name), *b = EVP_PKEY_Q_keygen(NULL, NULL, name);
	EVP_PKEY_CTX *context = EVP_PKEY_CTX_new(a, NULL);
	CHECK(EVP_PKEY_derive_init(context) > 0 && EVP_PKEY_derive_set_peer(context, b) > 0);
	CHECK(EVP_PKEY_derive(context, ours, &our_count) > 0);
	EVP_PKEY_CTX_free(context);
	context = EVP_PKEY_CTX_new(b, NULL);
	CHECK(EVP_PKEY_derive_init(context) > 0 && EVP_PKEY_derive_set_peer(context, a) > 0);
	CHECK(EVP_PKEY_derive(context, theirs, &their_count) > 0);
	EVP_PKEY_CTX_free(context);
	CHECK(our_count == their_count && memcmp(ours, theirs, our_count) == 0);
	EVP_PKEY_free(a);
	EVP_PKEY_free(b);
}

/* The test vectors of the standards. */
static void is_hex(const unsigned char *bytes, size_t count, const char *hex)
{
	CHECK(strlen(hex) == 2 * count);
	for (size_t i = 0; i < count; i++) {
		char digits[3];
		snprintf(digits, sizeof digits, "%02x", bytes[i]);
		CHECK(memcmp(digits, hex + 2 * i, 2) == 0);
	}
}

static size_t from_hex(unsigned char *bytes, const char *hex)
{
	size_t count = strlen(hex) / 2;
	for (size_t i = 0; i < count; i++) {
		unsigned value;
		CHECK(sscanf(hex + 2 * i, "%2x", &value) == 1);
		bytes[i] = (unsigned char)value;
	}
	return count;
}

static void seal_known(const char *name, const char *key, const char *vector, const char *plain, const char *expected,
		       const char *expected_tag)
{
	unsigned char keys[64], vectors[16] = {0}, text[64], sealed[96], tag[16];
	from_hex(keys, key);
	from_hex(vectors, vector);
	int length = (int)from_hex(text, plain), count = 0, rest = 0;
	EVP_CIPHER *method = EVP_CIPHER_fetch(NULL, name, NULL);
	EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
	CHECK(method && EVP_EncryptInit_ex2(context, method, keys, vectors, NULL));
	CHECK(EVP_CIPHER_CTX_set_padding(context, 0));
	CHECK(EVP_EncryptUpdate(context, sealed, &count, text, length));
	CHECK(EVP_EncryptFinal_ex(context, sealed + count, &rest));
	is_hex(sealed, (size_t)(count + rest), expected);
	if (expected_tag) {
		CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, 16, tag) > 0);
		is_hex(tag, 16, expected_tag);
	}
	EVP_CIPHER_CTX_free(context);
	EVP_CIPHER_free(method);
}

static void known_answers(void)
{
	static const char *abc[][2] = {
		{"MD5", "900150983cd24fb0d6963f7d28e17f72"},
		{"SHA1", "a9993e364706816aba3e25717850c26c9cd0d89d"},
		{"SHA224", "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7"},
		{"SHA256", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
		{"SHA384", "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed"
			   "8086072ba1e7cc2358baeca134c825a7"},
		{"SHA512", "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
			   "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f"},
		{"SHA3-256", "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532"},
		{"BLAKE2B-512", "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1"
				"7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923"},
		{"SM3", "66c7f0f462eeedd9d1f2d46bdc10e4e24167c4875cf2f7a2297da02b8f4ba8e0"},
	};
	unsigned char result[EVP_MAX_MD_SIZE], key[64], peer[64];
	size_t count = 0;
	for (size_t i = 0; i < sizeof abc / sizeof *abc; i++) {
		CHECK(EVP_Q_digest(NULL, abc[i][0], NULL, "abc", 3, result, &count));
		is_hex(result, count, abc[i][1]);
	}
	/* SP 800-38A F.1.1 and F.2.1; the second test case of the GCM specification. */
	seal_known("AES-128-ECB", "2b7e151628aed2a6abf7158809cf4f3c", "", "6bc1bee22e409f96e93d7e117393172a",
		   "3ad77bb40d7a3660a89ecaf32466ef97", NULL);
	seal_known("AES-128-CBC", "2b7e151628aed2a6abf7158809cf4f3c", "000102030405060708090a0b0c0d0e0f",
		   "6bc1bee22e409f96e93d7e117393172a", "7649abac8119b246cee98e9b12e9197d", NULL);
	seal_known("AES-128-GCM", "00000000000000000000000000000000", "000000000000000000000000",
		   "00000000000000000000000000000000", "0388dace60b6a392f328c2b971b2fe78",
		   "ab6e47d42cec13bdf53a67b21257bddf");
	/* RFC 4231, 4.2. */
	memset(key, 0x0b, 20);
	CHECK(EVP_Q_mac(NULL, "HMAC", NULL, "SHA256", NULL, key, 20, (const unsigned char *)"Hi There", 8, result,
			sizeof result, &count));
	is_hex(result, count, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
	/* RFC 8032, 7.1, the first test. */
	from_hex(key, "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
	EVP_PKEY *own = EVP_PKEY_new_raw_private_key_ex(NULL, "ED25519", NULL, key, 32);
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	count = sizeof result;
	CHECK(own && EVP_DigestSignInit_ex(context, NULL, NULL, NULL, NULL, own, NULL) > 0);
	CHECK(EVP_DigestSign(context, result, &count, (const unsigned char *)"", 0) > 0);
	is_hex(result, count, "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555"
			      "fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b");
	EVP_MD_CTX_free(context);
	EVP_PKEY_free(own);
	/* RFC 7748, 5.2. */
	from_hex(key, "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4");
	from_hex(peer, "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c");
	own = EVP_PKEY_new_raw_private_key_ex(NULL, "X25519", NULL, key, 32);
	EVP_PKEY *other = EVP_PKEY_new_raw_public_key_ex(NULL, "X25519", NULL, peer, 32);
	EVP_PKEY_CTX *derivation = EVP_PKEY_CTX_new(own, NULL);
	count = sizeof result;
	CHECK(EVP_PKEY_derive_init(derivation) > 0 && EVP_PKEY_derive_set_peer(derivation, other) > 0);
	CHECK(EVP_PKEY_derive(derivation, result, &count) > 0);
	is_hex(result, count, "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552");
	EVP_PKEY_CTX_free(derivation);
	EVP_PKEY_free(own);
	EVP_PKEY_free(other);
}

/* All algorithms that the library has. */
static void each_digest(EVP_MD *method, void *count)
{
	digest(EVP_MD_get0_name(method));
	++*(int *)count;
}

static void each_cipher(EVP_CIPHER *method, void *count)
{
	const char *name = EVP_CIPHER_get0_name(method);
	int mode = EVP_CIPHER_get_mode(method);
	/* Algorithms that take their text in one piece, or pack keys, are used differently. */
	int plain = mode == EVP_CIPH_ECB_MODE || mode == EVP_CIPH_CBC_MODE || mode == EVP_CIPH_CTR_MODE ||
		    mode == EVP_CIPH_CFB_MODE || mode == EVP_CIPH_OFB_MODE || mode == EVP_CIPH_GCM_MODE ||
		    mode == EVP_CIPH_OCB_MODE || mode == EVP_CIPH_XTS_MODE || mode == EVP_CIPH_STREAM_CIPHER;
	if (!plain || strstr(name, "CTS") || strstr(name, "HMAC") || strstr(name, "NULL"))
		return;
	/* These algorithms have assembly that works on many blocks at once. */
	static const char *at_length[] = {
		"AES-128-CBC", "AES-256-CTR", "AES-256-GCM", "AES-128-XTS", "AES-192-ECB", "AES-128-OCB",
		"ChaCha20", "ChaCha20-Poly1305", "CAMELLIA-256-CBC", "ARIA-128-CBC", "DES-EDE3-CBC",
	};
	size_t longest = 400;
	for (size_t i = 0; i < sizeof at_length / sizeof *at_length; i++)
		longest = strcmp(name, at_length[i]) ? longest : sizeof data;
	cipher(name, longest);
	++*(int *)count;
}

static void numbers(void)
{
	BN_CTX *context = BN_CTX_new();
	BIGNUM *base = BN_bin2bn(data, 256, NULL), *power = BN_bin2bn(data + 300, 256, NULL);
	BIGNUM *modulus = BN_bin2bn(data + 700, 256, NULL), *result = BN_new();
	unsigned char bytes[256];
	BN_set_bit(modulus, 0);
	BN_set_bit(modulus, 2047);
	CHECK(BN_mod_exp(result, base, power, modulus, context));
	CHECK(BN_bn2binpad(result, bytes, sizeof bytes) == sizeof bytes);
	add("modular", bytes, sizeof bytes);
	CHECK(BN_mod_exp_mont_consttime(power, base, power, modulus, context, NULL) && BN_cmp(result, power) == 0);
	BN_free(base);
	BN_free(power);
	BN_free(modulus);
	BN_free(result);
	BN_CTX_free(context);
}

int main(int argc, char **argv)
{
	int digests = 0, ciphers = 0;
	begin(&argc, argv);
	for (size_t i = 0; i < sizeof data; i++)
		data[i] = (unsigned char)((i * 2654435761u) >> 11);
	known_answers();
	EVP_MD_do_all_provided(NULL, each_digest, &digests);
	EVP_CIPHER_do_all_provided(NULL, each_cipher, &ciphers);
	printf("digests %d\nciphers %d\n", digests, ciphers);
	CHECK(digests >= 16 && ciphers >= 60);
	numbers();
	sign(EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t)1024), "SHA256");
	sign(EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256"), "SHA256");
	sign(EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-384"), "SHA384");
	sign(EVP_PKEY_Q_keygen(NULL, NULL, "ED25519"), NULL);
	certify(EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t)1024), EVP_PKEY_Q_keygen(NULL, NULL, "ED25519"), data, 1000);
	certify(EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256"), EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256"), data, 1000);
	certify(EVP_PKEY_Q_keygen(NULL, NULL, "ED25519"), EVP_PKEY_Q_keygen(NULL, NULL, "ED25519"), data, 1000);
	agree("X25519");
	agree("X448");
	return finish(sum);
}
