/* Known answers, and what must fit together, of OpenSSL's libcrypto: hand-written assembly for every unit of the
 * processor, with tables between its functions. Linked statically, so that all of it has symbols. */
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/obj_mac.h>
#include <openssl/provider.h>
#include <openssl/rsa.h>
#include "check.h"

static unsigned char data[20000];

/* A checksum of what came out: a test that fails to notice a wrong constant would have to collide. */
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
	/* Lengths around every block, by pieces and in one. */
	for (size_t length = 0; length < 600; length += 61) {
		CHECK(EVP_Q_digest(NULL, name, NULL, data, length, result, &count));
		add(name, result, count);
	}
	CHECK(EVP_Q_digest(NULL, name, NULL, data, sizeof data, result, &count));
	add(name, result, count);
}

static void cipher(const char *name)
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
	for (size_t length = 32; length < sizeof data; length = length * 3 + 16) {
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

/* Random keys: what is checked is that they fit. */
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
	static const char *digests[] = { "MD5", "SHA1", "SHA256", "SHA512", "SHA3-256", "SHAKE128", "BLAKE2B-512", "SM3" };
	static const char *ciphers[] = {
		"AES-128-CBC", "AES-256-CTR", "AES-256-GCM", "AES-128-XTS", "AES-192-ECB", "AES-128-OCB",
		"ChaCha20", "ChaCha20-Poly1305", "CAMELLIA-256-CBC", "ARIA-128-CBC", "DES-EDE3-CBC",
	};
	begin(&argc, argv);
	for (size_t i = 0; i < sizeof data; i++)
		data[i] = (unsigned char)((i * 2654435761u) >> 11);
	for (size_t i = 0; i < sizeof digests / sizeof *digests; i++)
		digest(digests[i]);
	for (size_t i = 0; i < sizeof ciphers / sizeof *ciphers; i++)
		cipher(ciphers[i]);
	numbers();
	sign(EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t)1024), "SHA256");
	sign(EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256"), "SHA256");
	sign(EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-384"), "SHA384");
	sign(EVP_PKEY_Q_keygen(NULL, NULL, "ED25519"), NULL);
	agree("X25519");
	agree("X448");
	return finish(sum);
}
